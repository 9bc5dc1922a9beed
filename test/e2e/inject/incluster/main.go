// Command incluster is a program as they run in pods: client-go, configured by rest.InClusterConfig
// and nothing else. It watches config maps with an informer, and lists them again and again with a
// configuration of its own each time. What it sees it prints, a line of JSON each. With -once it
// ends when it has seen a config map and a list from memory. With -dial it does nothing but
// connect, again and again, to the addresses that are its arguments.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Line is what it prints.
type Line struct {
	Added  string `json:"added,omitempty"`  // the name of a config map, from the watch
	Listed int    `json:"listed,omitempty"` // how many there are, from a list at resourceVersion 0
	Memory bool   `json:"memory,omitempty"` // that list was not the API server's
	Token  string `json:"token,omitempty"`  // that the request carried
	Host   string `json:"host,omitempty"`   // and where
	Dialed string `json:"dialed,omitempty"` // an address of -dial
	Error  string `json:"error,omitempty"`
}

var printing sync.Mutex

func say(l Line) {
	printing.Lock()
	defer printing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(l)
}

func main() {
	once := flag.Bool("once", false, "end at the first list from memory after a watch's first config map")
	dial := flag.Bool("dial", false, "connect to the arguments, and do nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if *dial {
		connect(ctx, flag.Args())
		return
	}
	if err := run(ctx, *once); err != nil {
		say(Line{Error: err.Error()})
		os.Exit(1)
	}
}

func run(ctx context.Context, once bool) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { say(Line{Added: o.(*corev1.ConfigMap).Name}) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	for ctx.Err() == nil {
		if memory := list(); once && memory && registration.HasSynced() {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

// connect says which addresses take connections, and why the others do not.
func connect(ctx context.Context, addresses []string) {
	d := net.Dialer{Timeout: 2 * time.Second}
	for ctx.Err() == nil {
		for _, address := range addresses {
			line := Line{Dialed: address}
			conn, err := d.DialContext(ctx, "tcp", address)
			if err != nil {
				line.Error = err.Error()
			} else {
				conn.Close()
			}
			say(line)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func list() (memory bool) {
	line, err := listOnce()
	if err != nil {
		line.Error = err.Error()
	}
	say(line)
	return line.Memory
}

func listOnce() (l Line, err error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return l, err
	}
	l.Token, l.Host = config.BearerToken, config.Host
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return l, err
	}
	defer client.CloseIdleConnections()
	client.Timeout = 10 * time.Second
	response, err := client.Get(config.Host + "/api/v1/configmaps?resourceVersion=0")
	if err != nil {
		return l, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return l, err
	}
	if response.StatusCode != http.StatusOK {
		return l, fmt.Errorf("%s: %s", response.Status, body)
	}
	var maps corev1.ConfigMapList
	if err := json.Unmarshal(body, &maps); err != nil {
		return l, err
	}
	l.Listed, l.Memory = len(maps.Items), response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == ""
	return l, nil
}
