"""What `orchid doctor` looks at: findings, and the checks that make them."""
