"""Human review: decisions, the review page, replaying decisions, and comparing two reviewers."""
