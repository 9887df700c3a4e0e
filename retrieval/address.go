package retrieval

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

const maxAddress = 2048 // bytes

// checkAddress refuses addresses, as a model may write them, that are not a public web page's.
// Names are not resolved: the service that fetches the page has to look where they lead. With
// allowed hosts, exactly those are let pass, whatever they are.
func checkAddress(address string, allowed []string) error {
	refuse := func(reason string) error { return &RefusedError{URL: firstBytes([]byte(address)), Reason: reason} }
	if len(address) > maxAddress {
		return refuse("too long")
	}
	u, err := url.Parse(address)
	if err != nil {
		return refuse("not an address")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return refuse("only http and https are allowed")
	}
	if u.User != nil {
		return refuse("a user name is not allowed")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "" {
		return refuse("no host")
	}
	if len(allowed) > 0 {
		if !slices.Contains(allowed, host) {
			return refuse("this host is not among the allowed ones")
		}
		return nil
	}
	if local(host) {
		return refuse("a host of the local network is not allowed")
	}
	return nil
}

// local reports whether a host is an IP address that is not public, or a name that only the local
// network knows. Numbers in other spellings (0x7f.1, 2130706433) count as local: resolvers may
// take them for an address.
func local(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Zone() != "" || carrierGrade.Contains(ip)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == host || last == "localhost" || last == "local" || last == "internal" {
		return true
	}
	return last == "" || (last[0] >= '0' && last[0] <= '9')
}

var carrierGrade = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
