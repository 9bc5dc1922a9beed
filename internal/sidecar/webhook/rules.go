package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"spillway/internal/sidecar/limits"
	"spillway/internal/upstream"
	"spillway/internal/upstream/transport"
)

// rulesTimeout is how long the start waits for the rules of namespaces. After that, pods are
// created without sidecars.
const rulesTimeout = 10 * time.Second

// clusterRules are the rules of all namespaces of a cluster.
type clusterRules struct {
	follower   *limits.Follower
	transports *transport.Factory
	client     *upstream.Client
	log        *zap.Logger
}

// newClusterRules returns the rules of the cluster of a kubeconfig. It sends nothing yet.
func newClusterRules(kubeconfig string, log *zap.Logger) (*clusterRules, error) {
	source, err := transport.LoadConfig(kubeconfig, "")
	if err != nil {
		return nil, fmt.Errorf("%w; or say --namespace-limits=ignore", err)
	}
	transports, err := transport.New(source, log)
	if err != nil {
		return nil, err
	}
	client, err := upstream.NewClient(transports)
	if err != nil {
		return nil, err
	}
	follower, err := limits.New(client.Config(), client.HTTP(), log)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &clusterRules{follower, transports, client, log}, nil
}

// follow follows the rules until ctx ends.
func (r *clusterRules) follow(ctx context.Context) {
	defer r.client.Close()
	var both sync.WaitGroup
	both.Go(func() { r.follower.Run(ctx) })
	both.Go(func() { _ = r.transports.Run(ctx) }) // it ends with its context, without an error
	both.Wait()
}

// await returns once the rules are known, after rulesTimeout, or when ctx ends.
func (r *clusterRules) await(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	err := r.follower.Wait(waiting)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.log.Warn("it is not known what namespaces allow their pods: they get no sidecars until it is; allow get, list and "+
		"watch of limitranges and resourcequotas", zap.Error(err))
}
