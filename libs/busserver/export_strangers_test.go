package busserver

import "time"

// CloseStrangers lets a test close connections at a time, if there are more than most.
func (s *Server) CloseStrangers(now time.Time, most int) (closed int, err error) {
	return s.closeStrangers(now, most)
}
