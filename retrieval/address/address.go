// Package address judges addresses that a language model may write: which are a public web page's,
// and which IP addresses belong to the public network.
package address

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

const maxLength = 2048 // bytes

// Parse reads an address and refuses, with a short reason, one that is not a public web page's. Its
// host comes back in lower case and ASCII, without a dot at its end. Names are not resolved: who
// connects has to look where they lead (see Public). With allowed hosts, entries "host" (any port)
// or "host:port", exactly those pass, wherever they are.
func Parse(text string, allowed []string) (*url.URL, error) {
	if len(text) > maxLength {
		return nil, errors.New("too long")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("not an address")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("only http and https are allowed")
	}
	if u.User != nil {
		return nil, errors.New("a user name is not allowed")
	}
	host, err := plainHost(u.Hostname())
	if err != nil {
		return nil, err
	}
	port := u.Port()
	switch {
	case len(allowed) > 0 && !Allowed(host, Port(u), allowed):
		return nil, errors.New("this host is not among the allowed ones")
	case len(allowed) == 0 && local(host):
		return nil, errors.New("a host of the local network is not allowed")
	case len(allowed) == 0 && port != "" && port != "80" && port != "443":
		return nil, errors.New("only the ports 80 and 443 are allowed")
	}
	u.Host = host
	if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	if port != "" {
		u.Host = net.JoinHostPort(host, port)
	}
	return u, nil
}

// Port is the port that an address leads to.
func Port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Allowed reports whether a list of hosts names a host, in lower case, with the port or without one.
func Allowed(host, port string, allowed []string) bool {
	return slices.Contains(allowed, host) || slices.Contains(allowed, net.JoinHostPort(host, port))
}

// plainHost brings the spellings of a host into one: full-width digits and dots, capitals and names
// in other scripts are what a resolver would make of them.
func plainHost(host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" {
		return "", errors.New("no host")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String(), nil
	}
	plain, err := idna.Lookup.ToASCII(host)
	if plain = strings.TrimSuffix(plain, "."); err != nil || plain == "" {
		return "", errors.New("not the name of a host")
	}
	return plain, nil
}

// localDomains are the last labels of names that only a local network knows.
var localDomains = []string{"", "localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "arpa"}

// local reports whether a host is an IP address that is not public, or a name that only the local
// network knows. Numbers in other spellings (0x7f.1, 2130706433) count as local: resolvers may
// take them for an address.
func local(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return !Public(ip)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == host || slices.Contains(localDomains, last) || last[0] >= '0' && last[0] <= '9'
}

// special are the parts of the unicast space that lead to no public host: IANA's registries of
// special-purpose addresses, multicast, and addresses at which clouds serve their own hosts.
var special = prefixes(
	"0.0.0.0/8",        // this network, RFC 791
	"10.0.0.0/8",       // private, RFC 1918
	"100.64.0.0/10",    // carrier-grade, RFC 6598
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // Azure's host
	"169.254.0.0/16",   // link-local, metadata of clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments, RFC 6890
	"192.0.2.0/24",     // documentation, RFC 5737
	"192.88.99.0/24",   // 6to4 relays, RFC 7526
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks, RFC 2544
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, broadcast

	"2001::/23",     // protocol assignments, Teredo, benchmarks, RFC 2928
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4, which holds an IPv4 address
	"3ffe::/16",     // the former 6bone
	"3fff::/20",     // documentation, RFC 9637
)

var (
	globalUnicast6 = netip.MustParsePrefix("2000::/3")     // all of IPv6 that is in use, RFC 4291
	nat64          = netip.MustParsePrefix("64:ff9b::/96") // holds an IPv4 address, RFC 6052
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for k, text := range texts {
		list[k] = netip.MustParsePrefix(text)
	}
	return list
}

// Public reports whether an IP address belongs to a host of the public network. An IPv6 address that
// stands for an IPv4 one is judged by that.
func Public(ip netip.Addr) bool {
	if ip.Zone() != "" {
		return false
	}
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if !ip.IsValid() || ip.Is6() && !globalUnicast6.Contains(ip) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) })
}
