import { assertEquals } from "@std/assert";
import { describeIptablesStep } from "./describe_iptables_step.ts";

const SERVICE = "ns1/web:http/TCP";
const words = (place: string, rule: string) =>
  describeIptablesStep({ place, rule, verdict: "" }, SERVICE);

Deno.test("describeIptablesStep() describes a rule of a Service", () => {
  assertEquals(
    words("nat OUTPUT", '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES'),
    "a new connection: is this an address of a Service?",
  );
  assertEquals(
    words("nat KUBE-SERVICES", "-d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.1.0.1:80"),
    "goes to this endpoint of ns1/web:http/TCP",
  );
  assertEquals(
    words("filter KUBE-SERVICES", "-d 10.96.0.1/32 -j REJECT --reject-with icmp-port-unreachable"),
    "refused: the sender gets an error",
  );
});

Deno.test("describeIptablesStep() is not misled by the words of a comment", () => {
  assertEquals(
    words("nat KUBE-SERVICES", '-m comment --comment "x -j REJECT " -j KUBE-MARK-MASQ'),
    "marked to leave with an address of this node as its source (masquerade)",
  );
});

Deno.test("describeIptablesStep() describes no foreign rules", () => {
  assertEquals(words("filter FORWARD", "-j CNI-FORWARD"), undefined);
  assertEquals(words("nat CNI-HOSTPORT", "-j DNAT --to-destination 10.1.0.1:80"), undefined);
  assertEquals(
    describeIptablesStep({ place: "nat OUTPUT", verdict: "accept" }, SERVICE),
    undefined,
  );
});
