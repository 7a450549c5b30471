package settings

import "github.com/switchyard-dl/switchyard/libs/config"

// Web configures the door for people.
type Web struct{ SharedSocket, SharedGroup string }

// Declare declares the section web.
func (c *Web) Declare(set *config.Set) {
	s := set.Section(WebSection, "The service web is the door for people.")
	s.String(&c.SharedSocket, "web-shared-socket", "", "Unix socket for the other users of the machine, each as himself, such as /run/switchyard/web.sock; empty: the owner of the data folder is the only user").
		As("shared_socket").Check(func() error {
		if c.SharedSocket == "" {
			return nil
		}
		return absolute(c.SharedSocket)
	})
	s.String(&c.SharedGroup, "web-shared-group", "", "group whose members may use the shared socket; empty: everybody").As("shared_group")
}
