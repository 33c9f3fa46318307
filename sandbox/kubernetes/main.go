// One program that holds every Kubernetes component the sandbox starts.
//
// Linking one binary costs a fraction of linking seven. The component is the
// name the program was called by (through a symbolic link), or its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func(context.Context) *cobra.Command{
	"kube-apiserver":          func(context.Context) *cobra.Command { return apiserver.NewAPIServerCommand() },
	"kube-controller-manager": func(context.Context) *cobra.Command { return controllermanager.NewControllerManagerCommand() },
	"kube-proxy":              func(context.Context) *cobra.Command { return proxy.NewProxyCommand() },
	"kube-scheduler":          func(context.Context) *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 newKubelet,
}

func main() {
	name, args := component(os.Args)
	switch {
	case name == "etcd":
		etcdmain.Main(args)
	case name == "kubectl":
		runKubectl(args)
	case components[name] != nil:
		os.Args = args
		os.Exit(cli.Run(components[name](context.Background())))
	default:
		fmt.Fprintf(os.Stderr, "%q is none of the components in this program\n", name)
		os.Exit(2)
	}
}

func component(args []string) (string, []string) {
	name := filepath.Base(args[0])
	if name == "etcd" || name == "kubectl" || components[name] != nil || len(args) < 2 {
		return name, args
	}
	return args[1], args[1:]
}

func runKubectl(args []string) {
	os.Args = args
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
