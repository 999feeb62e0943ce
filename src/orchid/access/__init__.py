"""Answers to two questions: who is calling, and may they?"""
