import { assertEquals } from "@std/assert";
import { testService } from "../../tests/support/builders/builders.ts";
import { EDGE_ANNOTATIONS, type EdgeSettingName } from "../api/service_annotations.ts";
import { describeEdgeSettings, type EdgeSettings } from "./edge_settings.ts";
import { servicePortsFromService } from "./service_port.ts";

function read(annotations: Readonly<Record<string, string>>) {
  const service = testService("web", { clusterIP: "10.96.0.1" }, { metadata: { annotations } });
  const { ports: [port], problems } = servicePortsFromService(service, { family: "IPv4" });
  return { edge: port?.edge, problems };
}

function readOne(setting: EdgeSettingName, text: string) {
  return read({ [EDGE_ANNOTATIONS[setting].name]: text });
}

Deno.test("servicePortsFromService() has no settings without annotations", () => {
  assertEquals(read({}).edge, undefined);
  assertEquals(read({ note: "hello" }).edge, undefined);
});

const VALUES: readonly [EdgeSettingName, string, unknown][] = [
  ["balance", " source-hash ", "source-hash"],
  ["maxConnections", "1", 1],
  ["idleMs", "1m30s", 90_000],
  ["sendProxy", "v1", "v1"],
  ["acceptProxyFrom", "10.0.0.0/8,2001:db8::/32", ["10.0.0.0/8", "2001:db8::/32"]],
  ["unixSockets", "[fd00::1]:80=unix:/run/a b=c.sock", [{
    ...{ address: "fd00::1", port: 80, path: "/run/a b=c.sock" },
  }]],
  ["weights", "10.0.0.1=2", [{ address: "10.0.0.1", weight: 2 }]],
  ["weights", "fd00::1=2", [{ address: "fd00::1", weight: 2 }]],
  ["weights", "[fd00::1]:80=256", [{ address: "fd00::1", port: 80, weight: 256 }]],
  ["healthStatus", "200,300 - 399", [{ from: 200, to: 200 }, { from: 300, to: 399 }]],
  ["healthHost", "[fd00::1]:8080", "[fd00::1]:8080"],
  ["healthPath", "/a?b=c", "/a?b=c"],
  ["healthThreshold", "0", 0],
];
for (const [setting, text, expected] of VALUES) {
  Deno.test(`servicePortsFromService() reads '${text}' of annotation ${setting}`, () => {
    const { edge, problems } = readOne(setting, text);
    assertEquals([edge, problems], [{ [setting]: expected } as EdgeSettings, []]);
  });
}

const MISTAKES: readonly [EdgeSettingName, string][] = [
  ["balance", "fastest"],
  ["balance", ""],
  ["sendProxyUdp", "v1"],
  ["maxConnections", "0"],
  ["maxConnections", "1e3"],
  ["maxConnections", "1000001"],
  ["idleMs", "10"],
  ["idleMs", "1ms"],
  ["lifetimeMs", "-5m"],
  ["acceptProxyFrom", "10.0.0.0/8,"],
  ["acceptProxyFrom", "everybody"],
  ["weights", "10.0.0.1"],
  ["weights", "10.0.0.1=0"],
  ["weights", "10.0.0.1=257"],
  ["weights", "10.0.0.1:0=1"],
  ["weights", "10.0.0.1:99999=1"],
  ["weights", "web=1"],
  ["unixSockets", "127.0.0.1:80=/run/app.sock"],
  ["unixSockets", "127.0.0.1=unix:/run/app.sock"],
  ["unixSockets", "127.0.0.1:80=unix:run/app.sock"],
  ["unixSockets", "127.0.0.1:80=unix:/run/../etc/app.sock"],
  ["unixSockets", "127.0.0.1:80=unix:/run//app.sock"],
  ["unixSockets", "127.0.0.1:80=unix:/run/app.sock/"],
  ["unixSockets", "127.0.0.1:80=unix:/run/a\nb.sock"],
  ["unixSockets", `127.0.0.1:80=unix:/${"x".repeat(107)}`],
  ["healthCheck", "https"],
  ["healthPort", "0"],
  ["healthPort", "http"],
  ["healthPath", "ready"],
  ["healthPath", "/a b"],
  ["healthPath", "/a\r\nX: y"],
  ["healthPath", "/\u00e4"],
  ["healthPath", `/${"x".repeat(1024)}`],
  ["healthHost", ""],
  ["healthHost", "a b"],
  ["healthHost", "a\r\nX: y"],
  ["healthHost", "user@host"],
  ["healthStatus", "600"],
  ["healthStatus", "2xx"],
  ["healthStatus", "399-200"],
  ["healthIntervalMs", "500ms"],
  ["healthTimeoutMs", "2m"],
  ["healthRise", "0"],
  ["healthThreshold", "101"],
  ["ejectionMs", "forever"],
  ["weights", Array.from({ length: 1001 }, () => "10.0.0.1=1").join(",")],
];
for (const [setting, text] of MISTAKES) {
  Deno.test(`servicePortsFromService() reports '${text.slice(0, 40)}' of annotation ${setting} and goes on`, () => {
    const { name, expected } = EDGE_ANNOTATIONS[setting];
    const { edge, problems: [problem, ...more] } = readOne(setting, text);
    assertEquals(edge, { unused: [name] });
    assertEquals(more, []);
    assertEquals([problem?.object, problem?.path], ["ns1/web", `metadata.annotations['${name}']`]);
    assertEquals(problem?.message, `The annotation is not used: it ${expected}`);
  });
}

Deno.test("servicePortsFromService() reports a health check that UDP ports cannot have", () => {
  const problemsOf = (protocol: string, annotations: Record<string, string>) => {
    const spec = { clusterIP: "10.96.0.1", ports: [{ name: "dns", port: 53, protocol }] };
    const service = testService("dns", spec, { metadata: { annotations } });
    const { ports: [port], problems } = servicePortsFromService(service, { family: "IPv4" });
    assertEquals(port?.edge?.healthCheck, "tcp");
    return problems.map(({ object, path, message }) => `${object} ${path}: ${message}`);
  };
  const check = { "kube-relay.io/health-check": "tcp" };
  assertEquals(problemsOf("UDP", check), [
    "ns1/dns metadata.annotations['kube-relay.io/health-check']: The endpoints of UDP ports are " +
    "not checked: kube-relay.io/health-check-port has to name a TCP port at their addresses",
  ]);
  assertEquals(problemsOf("UDP", { ...check, "kube-relay.io/health-check-port": "53" }), []);
  assertEquals(problemsOf("TCP", check), []);
});

Deno.test("servicePortsFromService() keeps the valid server names of a list with others, or none: never all", () => {
  const { name, expected } = EDGE_ANNOTATIONS.sni;
  for (const [text, sni] of [["a.test, b c,*.b.test", "a.test, *.b.test"], ["a b", "(none)"]]) {
    const { edge, problems } = readOne("sni", text!);
    assertEquals(describeEdgeSettings(edge!)[0], `sni ${sni}`);
    assertEquals(edge?.unused, [name]);
    const message = `Invalid items of the annotation are not used: it ${expected}`;
    assertEquals(problems.map((problem) => problem.message), [message]);
  }
});

Deno.test("describeEdgeSettings() names an annotation that is not used after the others", () => {
  const { edge } = read({ "kube-relay.io/balance": "x", "kube-relay.io/max-connections": "5" });
  assertEquals(describeEdgeSettings(edge!), [
    "max-connections 5",
    "annotation kube-relay.io/balance has an invalid value",
  ]);
});
