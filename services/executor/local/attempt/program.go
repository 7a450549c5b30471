package attempt

// SupervisorName is the program that supervises attempts. It is installed beside the programs that start it. It starts
// faster and takes less memory than they do in its place.
const SupervisorName = "switchyard-supervisor"

// The first arguments of a supervisor: with Supervise it supervises the attempt in the folder that follows, with Try it
// starts the program of the launch there and waits for it. With PrintVersion it prints the version of the launches that
// it reads.
//
// A supervisor of an attempt takes it over at once, and reads the launch when it has read a byte from its standard
// input, a socket. At its end before that, it gives the attempt up. It closes the socket once all programs run.
const (
	Supervise    = "__shim"
	Try          = "__try"
	PrintVersion = "version"
)
