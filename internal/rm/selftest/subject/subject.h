// laxity_subject serves a self-test over the memory fd until standard input ends. Its
// result is 0, or not, with the reason in that memory.
int laxity_subject(int fd, const char *ptx);
