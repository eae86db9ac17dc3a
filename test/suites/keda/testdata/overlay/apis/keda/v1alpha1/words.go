package v1alpha1

const workloadString = "workload"
