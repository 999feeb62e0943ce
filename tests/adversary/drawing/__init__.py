"""Operations drawn at random on one kind of object, from what exists."""
