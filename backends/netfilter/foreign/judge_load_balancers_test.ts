import { assertEquals } from "@std/assert";
import type { ListeningProgram } from "../../../lib/os/listening_programs.ts";
import { loadBalancerFindings, type SeenLoadBalancers } from "./judge_load_balancers.ts";

const SOCKET = "/run/kube-relay-bird/bird.ctl";
const ROUTING = { assignsByDefault: true, bgpSocket: SOCKET };
const SERVER = {
  role: "server",
  disableKubeProxy: true,
  disableNetworkPolicy: true,
  disableServiceLb: false,
} as const;

function found(seen: Partial<SeenLoadBalancers>): readonly string[] {
  return loadBalancerFindings({ programs: [], chains: [], ...seen })
    .map(({ severity, id, evidence }) => `${severity} ${id}: ${evidence.join("; ")}`);
}

function listens(name: string, pid: number, address: string): ListeningProgram {
  const port = Number(/:(\d+)$/.exec(address)?.[1] ?? NaN);
  return { address, ...(!Number.isNaN(port) && { port }), program: { name, pid } };
}

Deno.test("loadBalancerFindings() names programs that announce addresses, if kube-relay does too", () => {
  const programs = [
    listens("speaker", 7, "0.0.0.0:7472"),
    listens("kube-vip", 8, "[::]:2112"),
    listens("sshd", 9, "0.0.0.0:22"),
  ];
  assertEquals(found({ programs, routing: { assignsByDefault: true } }), [
    "warning metallb: speaker (process 7) listens on 0.0.0.0:7472",
    "warning kube-vip: kube-vip (process 8) listens on [::]:2112",
  ]);
  assertEquals(found({ programs }), []);
});

Deno.test("loadBalancerFindings() tells the own BIRD from another program on port 179", () => {
  const own = [listens("bird", 1, "0.0.0.0:179"), listens("bird", 1, SOCKET)];
  assertEquals(found({ programs: own, routing: ROUTING }), []);
  const foreign = [listens("bird", 2, "0.0.0.0:179"), listens("bird", 1, SOCKET)];
  assertEquals(found({ programs: foreign, routing: ROUTING }), [
    "blocking bgp-port: bird (process 2) listens on 0.0.0.0:179",
  ]);
  assertEquals(found({ programs: foreign, routing: { assignsByDefault: true } }), []);
  assertEquals(found({ programs: [{ address: "[::]:179", port: 179 }], routing: ROUTING }), [
    "blocking bgp-port: an unknown program listens on [::]:179",
  ]);
});

Deno.test("loadBalancerFindings() warns of ServiceLB where both assign addresses", () => {
  const evidence = "annotation k3s.io/node-args lacks --disable=servicelb";
  assertEquals(found({ nodeArgs: SERVER, routing: ROUTING }), [
    `warning klipper-service-lb: ${evidence}`,
  ]);
  assertEquals(found({ nodeArgs: { ...SERVER, disableServiceLb: true }, routing: ROUTING }), []);
  assertEquals(found({ nodeArgs: SERVER, routing: { assignsByDefault: false } }), []);
  // The server of an agent may have disabled it.
  assertEquals(found({ nodeArgs: { ...SERVER, role: "agent" }, routing: ROUTING }), []);
});
