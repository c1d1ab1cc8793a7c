"""Human review: decisions, the review page, replaying decisions and explaining them."""
