package predictions
import ("testing";"os";"fmt";"strings";"math";"slices";"github.com/switchyard-dl/switchyard/libs/curve")
func app(n string) string { i:=strings.LastIndex(n,"-"); return n[:i] }
func TestTmp(t *testing.T){
 m,err:=load(os.DirFS(os.Getenv("SWITCHYARD_DATA"))); if err!=nil{t.Fatal(err)}
 for _,mode:=range []string{"alone","family","family+moved","half"}{
 errs:=map[bool][]float64{}
 for i:=range m.trainings{ x:=&m.trainings[i]; if x.moved==nil{continue}
  h:=x.history(2)
  var kin []curve.StepSample
  for k:=range m.trainings{ y:=&m.trainings[k]; if y.steps==nil||app(y.name)!=app(x.name)||y.heldOut==x.heldOut {continue}
   kin=append(kin,curve.StepSample{Config:y.config,StepSeconds:y.stepSeconds,Weight:1})
   if mode=="family+moved"&&y.moved!=nil{ kin=append(kin,curve.StepSample{Config:y.movedTo,StepSeconds:y.moved[0]/float64(y.steps[0]),Weight:1}) }
  }
  if strings.HasPrefix(mode,"family") { h=h.With(curve.Lend(h.Kind,h.Ran(),nil,kin)) }
  mod:=curve.Refit(h)
  tr:=x.moved[0]/x.seconds[0]
  pr:=mod.Speed.StepSeconds(x.movedTo)/mod.Speed.StepSeconds(x.config)
  if mode=="half"{pr=0.5}
  errs[x.heldOut]=append(errs[x.heldOut],math.Abs(pr/tr-1))
  if mode!="half"&&x.heldOut{fmt.Printf("X %s %-18s %d/%d->%d/%d true %.3f pred %.3f\n",mode,x.name,x.config.Workers,x.config.Nodes,x.movedTo.Workers,x.movedTo.Nodes,tr,pr)}
 }
 for _,h:=range []bool{true,false}{ slices.Sort(errs[h]); e:=errs[h]; fmt.Printf("X == %s held %v n %d median %.3f p90 %.3f\n",mode,h,len(e),e[len(e)/2],e[len(e)*9/10])}
 }}
