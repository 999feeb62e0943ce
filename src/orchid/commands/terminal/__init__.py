"""What commands share: the server they speak to, and how they print."""
