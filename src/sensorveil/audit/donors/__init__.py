"""What a generator reveals about its donors: the people whose windows it was trained on."""

from sensorveil.audit.donors.study import PAPER, Contender, DonorData, DonorStudy, donor_study

__all__ = ["PAPER", "Contender", "DonorData", "DonorStudy", "donor_study"]
