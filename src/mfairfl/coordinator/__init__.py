"""What runs at the server: asking silos, enrolment, audits over silos."""
