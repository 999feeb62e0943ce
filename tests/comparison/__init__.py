"""Two servers are asked the same random questions, and what they answer is compared."""
