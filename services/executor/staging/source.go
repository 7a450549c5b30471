package staging

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Policy says which addresses may be reached.
type Policy struct {
	// Networks may be reached although they are the machine itself or link-local.
	Networks []netip.Prefix `json:"networks"`
	// WebHDFSPort is the port on which the namenode of an hdfs address answers HTTP.
	WebHDFSPort int `json:"webhdfs_port"`
	// S3 is the address of the server of s3 addresses.
	S3 string `json:"s3"`
}

// source is where data is.
type source interface {
	// list describes what is there. known is the version of the copy: a source may say that it is unchanged instead.
	list(ctx context.Context, known string) (listing, error)
	open(ctx context.Context, i item) (io.ReadCloser, error)
}

// listing is what a source has.
type listing struct {
	version   string
	unchanged bool
	items     []item
}

// item is a file: its name in the copy, with slashes, and where it is. bytes is 0 if unknown.
type item struct {
	name, at string
	bytes    int64
}

func (l listing) bytes() (sum int64) {
	for _, i := range l.items {
		sum += i.bytes
	}
	return sum
}

// source returns the source that an address names.
func (c *client) source(address string) (source, error) {
	u, err := url.Parse(address)
	if err != nil || !slices.Contains(train.DataSchemes(), u.Scheme) || u.User != nil {
		return nil, fmt.Errorf("%w: %q: want an address without a password, of %s", ErrNever, address, strings.Join(train.DataSchemes(), ", "))
	}
	switch u.Scheme {
	case "file":
		return folder{u.Path}, nil
	case "hdfs":
		return hdfs{c, fmt.Sprintf("http://%s:%d", u.Hostname(), c.policy.WebHDFSPort), path.Clean("/" + u.Path)}, nil
	case "webhdfs":
		return hdfs{c, "http://" + u.Host, path.Clean("/" + u.Path)}, nil
	case "s3":
		return object{c, strings.TrimSuffix(c.policy.S3, "/") + "/" + u.Host + u.EscapedPath()}, nil
	}
	return object{c, address}, nil
}

// nameOf returns the name of the file that an address leads to.
func nameOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "data"
	}
	if name := path.Base(u.Path); name != "/" && name != "." && name != ".." {
		return name
	}
	return "data"
}
