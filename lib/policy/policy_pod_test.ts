import { assertEquals, assertStrictEquals } from "@std/assert";
import { podKey, testPod } from "../../tests/support/builders/policy_objects.ts";
import type { Pod } from "../api/kinds/pod.ts";
import { parsePod, portFinder } from "./policy_pod.ts";
import { PolicyState } from "./policy_state.ts";

const port = (name: string, containerPort: number, protocol?: string) => ({
  name,
  containerPort,
  ...(protocol && { protocol }),
});

const POD: Pod = {
  metadata: { name: "a", namespace: "x" },
  spec: {
    containers: [
      {},
      { ports: [port("http", 80), port("dns", 53, "UDP"), { containerPort: 1 }] },
      { ports: [port("http", 81), port("dns", 54)] },
    ],
    initContainers: [
      { ports: [port("init", 90)] },
      { restartPolicy: "Always", ports: [port("sidecar", 91), port("http", 92)] },
    ],
  },
  status: { podIPs: [{ ip: "10.1.0.1" }] },
};

const PORTS = [
  { name: "http", protocol: "TCP", found: 80 },
  { name: "http", protocol: "UDP", found: undefined },
  { name: "dns", protocol: "UDP", found: 53 },
  { name: "dns", protocol: "TCP", found: 54 },
  { name: "sidecar", protocol: "TCP", found: 91 },
  { name: "init", protocol: "TCP", found: undefined },
  { name: "", protocol: "TCP", found: undefined },
  // A port without a name is not the one of this name.
  { name: "undefined", protocol: "TCP", found: undefined },
] as const;

for (const { name, protocol, found } of PORTS) {
  Deno.test(`portFinder() finds ${found ?? "nothing"} for ${protocol} '${name}'`, () => {
    assertEquals<number | undefined>(
      portFinder(parsePod(podKey("x/a"), POD)!)({ name, protocol }),
      found,
    );
  });
}

Deno.test("parsePod() reads addresses of both families, each once, or the one of old servers", () => {
  const addressesOf = (status: Pod["status"]) =>
    parsePod(podKey("x/a"), { ...POD, status })?.addresses;
  const ips = ["2001:DB8::1", "10.1.0.1", "10.01.0.1", "nonsense"].map((ip) => ({ ip }));
  assertEquals<unknown>(addressesOf({ podIPs: ips }), ["10.1.0.1", "2001:db8::1"]);
  assertEquals<unknown>(addressesOf({ podIP: "10.1.0.2" }), ["10.1.0.2"]);
  assertEquals(addressesOf({ podIPs: [{ ip: "nonsense" }] }), undefined);
});

const ENDED = { state: { terminated: { exitCode: 0 } } };
const deletionTimestamp = "2026-01-01T00:00:00Z";

for (
  const [text, hasFinished, metadata, status] of [
    ["not deleted", false, {}, { containerStatuses: [ENDED, ENDED, ENDED] }],
    ["no statuses", false, { deletionTimestamp }, {}],
    ["one status short", false, { deletionTimestamp }, { containerStatuses: [ENDED, ENDED] }],
    ["one runs", false, { deletionTimestamp }, { containerStatuses: [ENDED, ENDED, {}] }],
    ["all ended", true, { deletionTimestamp }, { containerStatuses: [ENDED, ENDED, ENDED] }],
    ["a sidecar runs", false, { deletionTimestamp }, {
      containerStatuses: [ENDED, ENDED, ENDED],
      initContainerStatuses: [ENDED, {}],
    }],
    ["a debugger runs", false, { deletionTimestamp }, {
      containerStatuses: [ENDED, ENDED, ENDED],
      ephemeralContainerStatuses: [{}],
    }],
  ] as const
) {
  Deno.test(`parsePod() ${hasFinished ? "drops" : "keeps"} a pod: ${text}`, () => {
    const pod = parsePod(podKey("x/a"), {
      ...POD,
      metadata: { ...POD.metadata, ...metadata },
      status: { ...POD.status, phase: "Running", ...status },
    });
    assertEquals(pod === undefined, hasFinished);
  });
}

Deno.test("PolicyState keeps the newest object of a pod that is the same to policies", () => {
  const state = new PolicyState();
  for (const phase of ["Pending", "Running"]) {
    const object = testPod("x/a", { address: "10.1.0.1", phase });
    state.setPod(podKey("x/a"), object);
    assertStrictEquals(state.pods.get(podKey("x/a"))?.object, object);
  }
});
