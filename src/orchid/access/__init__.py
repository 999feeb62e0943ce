"""Authentication and authorization: who is calling, and may they?"""
