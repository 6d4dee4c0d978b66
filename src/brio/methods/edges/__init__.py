"""What methods that score, sample or weigh edges share."""
