package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mempo-train/mempo-train/retrieval/address"
)

// Resolver finds the IP addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// maxAddresses of a name are tried.
const maxAddresses = 4

// errNotPublic says that a name leads into a local network.
var errNotPublic = errors.New("this host leads into a local network")

// errNoHost says that there is no such name.
var errNoHost = errors.New("there is no such host")

// guard connects to public addresses only. It resolves a name itself, once, and connects to what it
// has checked: a name that changes between check and connection gains nothing.
type guard struct {
	allowed  []string
	resolver Resolver
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
}

// DialContext is that of a http.Transport; target is "host:port".
func (g *guard) DialContext(ctx context.Context, network, target string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	ips, err := g.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if !address.Allowed(host, port, g.allowed) {
		for _, ip := range ips {
			if !address.Public(ip) {
				return nil, errNotPublic
			}
		}
	}
	var failures []error
	for _, ip := range ips[:min(len(ips), maxAddresses)] {
		conn, err := g.dial(ctx, network, net.JoinHostPort(ip.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func (g *guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ips, err := g.resolver.LookupNetIP(ctx, "ip", host)
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound || err == nil && len(ips) == 0 {
		return nil, errNoHost
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be resolved: %w", host, err)
	}
	return ips, nil
}
