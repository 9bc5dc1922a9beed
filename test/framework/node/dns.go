package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// names is the cluster's DNS: the A records of Services of the specification
// (kubernetes/dns/docs/specification.md), and nothing outside the cluster. A small server of our
// own, because CoreDNS is a build of several minutes.
type names struct {
	services  corelisters.ServiceLister
	endpoints discoverylisters.EndpointSliceLister
}

const clusterDomain = "svc.cluster.local."

func newNames(ctx context.Context, factory informers.SharedInformerFactory) *names {
	n := &names{
		services:  factory.Core().V1().Services().Lister(),
		endpoints: factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return n
}

// lookup returns the addresses of a name with a final dot. A name that exists may have none.
func (n *names) lookup(name string) (addresses []net.IP, exists bool) {
	inside, ok := strings.CutSuffix(strings.ToLower(name), "."+clusterDomain)
	if !ok {
		return nil, false
	}
	parts := strings.Split(inside, ".")
	hostname := ""
	if len(parts) == 3 {
		hostname, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil, false
	}
	service, err := n.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, false
	}
	if ip := net.ParseIP(service.Spec.ClusterIP); ip != nil {
		return []net.IP{ip}, hostname == ""
	}
	slices, err := n.endpoints.EndpointSlices(service.Namespace).List(
		labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	if err != nil || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, false
	}
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			named := endpoint.Hostname != nil && *endpoint.Hostname == hostname
			if hostname != "" && !named || !ready && !service.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, address := range endpoint.Addresses {
				addresses = append(addresses, net.ParseIP(address))
			}
		}
	}
	return addresses, hostname == "" || len(addresses) > 0
}

// answer answers a packed query; nil means that the query cannot be read.
func (n *names) answer(query []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil
	}
	question, err := p.Question()
	if err != nil {
		return nil
	}
	addresses, exists := n.lookup(question.Name.String())
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true,
			RecursionDesired: header.RecursionDesired},
		Questions: []dnsmessage.Question{question},
	}
	if !exists {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		v4 := address.To4()
		if v4 == nil || question.Type != dnsmessage.TypeA {
			continue
		}
		reply.Answers = append(reply.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5},
			Body:   &dnsmessage.AResource{A: [4]byte(v4)},
		})
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// serve answers at an address, by UDP and TCP, for as long as the process lives.
func (n *names) serve(address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return fmt.Errorf("cannot serve DNS: %w", err)
	}
	streams, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot serve DNS: %w", err)
	}
	go func() {
		query := make([]byte, 1<<12)
		for {
			size, from, err := packets.ReadFrom(query)
			if err != nil {
				return
			}
			if reply := n.answer(query[:size]); reply != nil {
				_, _ = packets.WriteTo(reply, from) // the client asks again
			}
		}
	}()
	go accept(streams, func(conn net.Conn) {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		if reply := n.answer(query); reply != nil {
			_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)) // as above
		}
	})
	return nil
}

// accept serves each connection in a goroutine of its own, until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// join copies both ways until each side has ended.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // the copy ends with either connection
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // as above
			}
		})
	}
	both.Wait()
}
