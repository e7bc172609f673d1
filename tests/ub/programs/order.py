# Two streams of torch that do not wait for each other, and memory that goes back too soon.
import torch

x = torch.ones(1024, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    y = x * 2  #~ stream-race
side.wait_stream(torch.cuda.current_stream())
torch.cuda.current_stream().wait_stream(side)
z = y + 1
with torch.cuda.stream(side):
    w = torch.zeros(4096, device="cuda")
torch.cuda.current_stream().wait_stream(side)
v = w + 1
del w
u = v + 1  #~ stream-freed-in-use
with torch.cuda.stream(side):
    kept = torch.zeros(4096, device="cuda")
torch.cuda.current_stream().wait_stream(side)
kept.record_stream(torch.cuda.current_stream())
v = kept + 1
del kept
leaf = torch.ones(64, 64, device="cuda", requires_grad=True)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    (leaf @ leaf).sum().backward()
torch.cuda.current_stream().wait_stream(side)
print(leaf.grad.sum().item(), u.sum().item(), v.sum().item(), z.sum().item())
