import torch
import torch.nn as  nn
import torch.optim as  optim
from torch.autograd import Variable
from torch.utils.data import Dataset, DataLoader
from kubernetesdlprofile import kubeprofiler
class  RandomDataset(Dataset):
   def __init__(self, size, length):
      self.len = length
      self.data = torch.randn(length, size)
   def __getitem__(self, index):
      return  self.data[index]
   def __len__(self):
      return self.len
class Model(nn.Module):
   def __init__(self, input_size, output_size):
      self.prof = kubeprofiler.KubeProfiler()
      super(Model, self).__init__()
      self.fc = nn.Linear(input_size, output_size)
      self.sigmoid = nn.Sigmoid()
   def forward(self, input):
      return self.sigmoid(self.fc(input))
if __name__ == '__main__':
   input_size = 5
   output_size = 1
   model = Model(input_size, output_size)
   batch_size = model.prof.BATCH_SIZE
   data_size = model.prof.TRAINING_SET_SIZE
   PATH = model.prof.root_dir+'/cifar_net.pth'
   rand_loader = DataLoader(dataset=RandomDataset(input_size, data_size),
   batch_size=batch_size, shuffle=True)
   print("Let's use", torch.cuda.device_count(), "GPUs!")
   model_par = nn.DataParallel(model).cuda()
   print(f"Scheduler assigned {model.prof.NUM_GPUS} gpus")
   optimizer = optim.SGD(params=model_par.parameters(), lr=1e-3)
   cls_criterion = nn.BCELoss()
   if model.prof.RESTARTED:
      model_par.load_state_dict(torch.load(PATH))
   for epoch in range(model.prof.EPOCHS - model.prof.EPOCHS_DONE):
      model.prof.start_epoch()
      for data in rand_loader:
         targets = torch.empty(data.size(0)).random_(2).view(-1, 1)
         if torch.cuda.is_available():
            input = Variable(data.cuda())
            with torch.no_grad():
               targets = Variable(targets.cuda())
         else:
            input = Variable(data)
            with torch.no_grad():
               targets = Variable(targets)
         output = model_par(input)
         optimizer.zero_grad()
         loss = cls_criterion(output, targets)
         loss.backward()
         optimizer.step()
         model.prof.measure()
      model.prof.end_epoch()
      torch.save(model_par.state_dict(), PATH)
