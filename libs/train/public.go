package train

// Public returns what everybody may see of a job: whose it is, what it asks for and how it goes; not what it runs, with
// which environment, where its files are, or what it has written.
func (j Job) Public() Job {
	j.Spec, j.Checkpoint, j.LogTail, j.Edits = j.Spec.Public(), "", "", nil
	return j
}

// Public returns what everybody may see of a spec.
func (s Spec) Public() Spec {
	return Spec{
		Name: s.Name, Project: s.Project, Labels: s.Labels, User: s.User, Tenant: s.Tenant,
		BatchSize: s.BatchSize, GlobalBatchSize: s.GlobalBatchSize, TrainingSetSize: s.TrainingSetSize, MaxEpochs: s.MaxEpochs, MaxSteps: s.MaxSteps,
		SingleDevice: s.SingleDevice, AllowSharing: s.AllowSharing, ShareAcrossTenants: s.ShareAcrossTenants, DisableSharing: s.DisableSharing, EstimatedMemoryMiB: s.EstimatedMemoryMiB, EstimatedHours: s.EstimatedHours,
		Cores: s.Cores, MainMemoryMiB: s.MainMemoryMiB, Ports: s.Ports, Priority: s.Priority,
		Devices: s.Devices, Device: s.Device, GPU: s.GPU, GPUMemory: s.GPUMemory, CPUs: s.CPUs, Memory: s.Memory, MinDevices: s.MinDevices, MaxDevices: s.MaxDevices,
		NodeLabels: s.NodeLabels, Deadline: s.Deadline, After: s.After, Array: s.Array, ArrayMember: s.ArrayMember, Continue: s.Continue, TimeLimit: s.TimeLimit,
		Strategy: s.Strategy, ParameterServers: s.ParameterServers, Launch: s.Launch, Energy: s.Energy,
	}
}
