package settings

import (
	"errors"
	"net"

	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Web configures the door for people.
type Web struct {
	SharedSocket, SharedGroup string
	// Listen is the address of the page; empty: none. Hosts are its names besides localhost.
	Listen string
	Hosts  []string
	// MetricsJobs is the number of jobs with metrics of their own.
	MetricsJobs int
	// KubernetesAudience is that of the tokens of Kubernetes that are taken over TCP; empty: none are.
	KubernetesAudience string
	// TrainingJobs makes jobs of the TrainingJob objects of the cluster.
	TrainingJobs bool
	// TrainJobs does the same with the TrainJob objects of Kubeflow that name our runtime.
	TrainJobs bool
	// Extender is the address at which schedulers of Kubernetes ask where pods of no job are to run; empty: none. They
	// know the word in ExtenderSecret.
	Extender, ExtenderSecret string
}

// Declare declares the section web.
func (c *Web) Declare(set *config.Set) {
	s := set.Section(WebSection, "The service web is the door for people.")
	s.String(&c.Listen, "web-listen", "127.0.0.1:7470", "address of the page; if its port is taken, a free one; empty: the page is on the Unix sockets alone").As("listen").Check(func() error {
		if _, _, err := net.SplitHostPort(c.Listen); c.Listen != "" && err != nil {
			return errors.New("want host:port, e.g. 127.0.0.1:7470")
		}
		return nil
	})
	s.Int(&c.MetricsJobs, "web-metrics-jobs", 1000, "how many jobs, and owners of waiting jobs, have metrics of their own (0: none)").As("metrics_jobs").Check(func() error {
		if c.MetricsJobs < 0 {
			return errors.New("want 0 or more")
		}
		return nil
	})
	s.Strings(&c.Hosts, "web-hosts", nil, "names under which browsers reach the page, besides localhost and addresses, such as the name of a proxy").As("hosts")
	s.String(&c.KubernetesAudience, "web-kubernetes-audience", "", "audience of the tokens of Kubernetes by which people and pods are known over TCP, such as switchyard; empty: none are taken").As("kubernetes_audience")
	s.Bool(&c.TrainingJobs, "web-training-jobs", false, "make jobs of the TrainingJob objects of Kubernetes, of the cluster of KUBECONFIG or else the one in which web is a pod").As("training_jobs")
	s.Bool(&c.TrainJobs, "web-train-jobs", false, "make jobs of the TrainJob objects of Kubeflow whose runtimeRef has the apiGroup switchyard.dev, too; their definition must be in the cluster").As("train_jobs")
	s.String(&c.Extender, "web-extender", "", "address at which the scheduler of Kubernetes asks where pods that ask for "+train.PodMemoryResource+" are to run, such as 0.0.0.0:7471; empty: none").As("extender").Check(func() error {
		if _, _, err := net.SplitHostPort(c.Extender); c.Extender != "" && err != nil {
			return errors.New("want host:port, e.g. 0.0.0.0:7471")
		}
		if c.Extender != "" && c.ExtenderSecret == "" {
			return errors.New("want web.extender_secret, too")
		}
		return nil
	})
	s.String(&c.ExtenderSecret, "web-extender-secret", "", "file with the word that the scheduler has in its urlPrefix, http://HOST:PORT/WORD").As("extender_secret").Check(func() error { return absoluteOrNone(c.ExtenderSecret) })
	s.String(&c.SharedSocket, "web-shared-socket", "", "Unix socket for the other users of the machine, each as himself, such as /run/switchyard/web.sock; empty: the owner of the data folder is the only user").
		As("shared_socket").Check(func() error {
		if c.SharedSocket == "" {
			return nil
		}
		return absolute(c.SharedSocket)
	})
	s.String(&c.SharedGroup, "web-shared-group", "", "group whose members may use the shared socket; empty: everybody").As("shared_group")
}
