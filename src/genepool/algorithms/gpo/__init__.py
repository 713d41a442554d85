"""GPO (Gangwani and Peng 2018): a population of learners that mutate by PPO or A2C and have children."""
