package train

// Staging is how far the data of an attempt is on its way to the node.
type Staging struct {
	// URL is where the data comes from, as the job names it.
	URL string `json:"url"`
	// Bytes were fetched of Total, which is 0 while nobody knows it.
	Bytes int64 `json:"bytes"`
	Total int64 `json:"total,omitempty"`
	// Cached reports that the node had a copy already, and that its source has not changed.
	Cached bool `json:"cached,omitempty"`
}

// DataSchemes are the schemes of addresses that a node can fetch.
func DataSchemes() []string { return []string{"file", "hdfs", "http", "https", "s3", "webhdfs"} }

// Whole reports whether all of it is there.
func (s Staging) Whole() bool { return s.Cached || s.Total > 0 && s.Bytes >= s.Total }

// NotStaged is the reason code of an attempt whose data could not be fetched.
const NotStaged = "DataNotStaged"
