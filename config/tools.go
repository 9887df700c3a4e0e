package config

import (
	"fmt"
	"regexp"
	"strings"
)

// CustomTool is a service of the user's that is asked like a search service.
type CustomTool struct {
	Name        string  `toml:"name"`        // of the tool, in messages and in the log
	Tag         string  `toml:"tag"`         // <tag>text</tag> asks it; "" is its name. "" (own)
	Description string  `toml:"description"` // what it does and takes, said to the model in the shipped system prompt
	URL         string  `toml:"url"`         // address of POST /retrieve
	TopK        int     `toml:"topk"`        // passages per call. 1 (own)
	Timeout     Seconds `toml:"timeout_s"`   // of one try. 10 (own)
	Tries       int     `toml:"tries"`       // 3 (own)
	Concurrency int     `toml:"concurrency"` // calls at the same time. 64 (own)
}

func (c *CustomTool) setDefaults() {
	c.TopK, c.Timeout, c.Tries, c.Concurrency = 1, 10, 3, 64
}

// TagName is the name of the tag that asks the tool.
func (c CustomTool) TagName() string {
	if c.Tag == "" {
		return c.Name
	}
	return c.Tag
}

func checkCustom(r *rules, key string, tools []CustomTool) {
	for k, tool := range tools {
		tool.check(r, fmt.Sprintf("of entry %d of %s", k+1, key))
	}
}

// check leaves the tag to the package that reads tags.
func (c CustomTool) check(r *rules, of string) {
	r.given("name "+of, c.Name, "a name for the tool")
	r.given("description "+of, c.Description, "what the tool does and takes, for the model")
	r.address("url "+of, c.URL, "the address of the service")
	atLeast(r, "topk "+of, c.TopK, 1)
	above(r, "timeout_s "+of, c.Timeout, 0)
	atLeast(r, "tries "+of, c.Tries, 1)
	atLeast(r, "concurrency "+of, c.Concurrency, 1)
}

var allowedHost = regexp.MustCompile(`^([a-z0-9._-]+|\[[0-9a-f:.]+\]|[0-9a-f:]+:[0-9a-f:.]+)(:[0-9]{1,5})?$`)

// checkHosts judges what an enabled access is told about hosts.
func (a Access) checkHosts(r *rules, prefix string) {
	r.web(prefix, a.AllowHosts, a.PerSecond)
	if a.Record != "" && a.Via == "folder" {
		r.violated(prefix+".record", quoted(a.Record), `"" with via "folder", whose pages are on disk already`)
	}
}

// web checks which hosts are opened and how often.
func (r *rules) web(prefix string, allowed List, perSecond float64) {
	for _, host := range allowed {
		if !allowedHost.MatchString(host) || strings.HasSuffix(host, ".") {
			r.violated(prefix+".allow_hosts", quoted(host), `hosts in small ASCII letters, "host" or "host:port", without a scheme or a path`)
		}
	}
	atLeast(r, prefix+".per_second", perSecond, 0)
}
