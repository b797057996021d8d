package enforce

// RunDir is the default folder of records that a reboot undoes, and of the locks by which
// programs find each other.
const RunDir = "/run/laxity"
