package podlog

import "bytes"

// line is one line of a container's log as the runtime writes it: "2026-01-02T03:04:05.678901234Z stdout F text".
type line struct {
	// at is the time as it was written.
	at     string
	stderr bool
	// partial is set if the text continues in the next line of the same stream.
	partial bool
	text    []byte
}

// parseLine parses a line without its end. ok is false if it has another form, for example because the runtime was
// killed while it wrote.
func parseLine(raw []byte) (l line, ok bool) {
	at, rest, found := bytes.Cut(raw, []byte(" "))
	stream, rest, more := bytes.Cut(rest, []byte(" "))
	tags, text, last := bytes.Cut(rest, []byte(" "))
	if !found || !more || !last {
		return line{}, false
	}
	switch string(stream) {
	case "stdout":
	case "stderr":
		l.stderr = true
	default:
		return line{}, false
	}
	// Future versions may add tags after the first one.
	switch tag, _, _ := bytes.Cut(tags, []byte(":")); string(tag) {
	case "F":
	case "P":
		l.partial = true
	default:
		return line{}, false
	}
	l.at, l.text = string(at), text
	return l, true
}
