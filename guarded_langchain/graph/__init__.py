"""LangGraph: pausing with a question, reading the replies, knowing a call again. All that is private there is here."""
