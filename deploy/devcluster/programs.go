package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/metrics/prometheus/clientgo" // clients' metrics in the programs' /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info in the programs' /metrics

	"github.com/switchyard-dl/switchyard/deploy/devcluster/cluster"
)

// program finds one of the programs that this binary also is, and returns what runs it and gives its exit status.
func program(name string) (func() int, bool) {
	switch name {
	case cluster.APIServer:
		return func() int { return cli.Run(apiserver.NewAPIServerCommand()) }, true
	case cluster.ControllerManager:
		return func() int { return cli.Run(controllers.NewControllerManagerCommand()) }, true
	case cluster.Scheduler:
		return func() int { return cli.Run(scheduler.NewSchedulerCommand()) }, true
	case cluster.Proxy:
		return func() int { return cli.Run(proxy.NewProxyCommand()) }, true
	case cluster.Kubelet:
		return func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }, true
	case cluster.Etcd:
		return func() int { return execute(newEtcdCommand()) }, true
	case cluster.DNS:
		return func() int { return execute(newDNSCommand()) }, true
	case cluster.NodeHolder:
		return func() int { return execute(newHolderCommand()) }, true
	case "kubectl":
		return runKubectl, true
	}
	return nil, false
}

func runKubectl() int {
	// kubectl wants its verbosity before the flags are parsed, as its own main does it.
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		return 1
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
