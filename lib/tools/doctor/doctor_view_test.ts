import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { missingFeature } from "../../../tests/support/fakes/fake_host_checks.ts";
import { byGravity, type DoctorReport, isBlocked } from "./doctor_report.ts";
import { renderDoctor } from "./doctor_view.ts";

const REPORT: DoctorReport = {
  program: { version: "1.2.3", kubeProxy: "1.36", deno: "2.9.6", platform: "linux/x86_64" },
  machine: {
    hostname: "node-a",
    kernel: "6.1.0",
    uid: 0,
    capabilities: ["CAP_NET_ADMIN"],
    toolsPath: ["/opt/tools"],
  },
  modes: [
    {
      mode: "nftables",
      inRelease: false,
      families: ["IPv4"],
      features: [
        { feature: "nft", available: true, required: true, detail: "version 1.0.6" },
        { feature: "fib", available: true, required: true, detail: "works", family: "IPv4" },
        missingFeature("fib", { family: "IPv6", lost: "Node ports" }),
        missingFeature("reject", { required: false, family: "IPv4" }),
        missingFeature("reject", { required: false, family: "IPv6" }),
      ],
    },
    { mode: "userspace", inRelease: true, families: ["IPv4", "IPv6"], features: [] },
  ],
  choice: { request: "default", mode: "userspace", reasons: ["iptables: it is missing"] },
  api: { state: "not configured", detail: "nothing was given" },
  relay: { state: "not running", detail: "no program listens" },
  findings: [
    {
      id: "kube-proxy-alive",
      severity: "blocking",
      summary: "A kube-proxy runs on this node",
      evidence: ["port 10256 answers"],
      cure: "turn it off",
    },
  ],
};

Deno.test("renderDoctor() reports machine, modes, choice and findings", () => {
  assertEquals(
    renderDoctor(REPORT),
    `kube-relay v1.2.3 (kube-proxy 1.36, Deno 2.9.6, linux/x86_64)
Machine    node-a, kernel 6.1.0
User       root; its tools have CAP_NET_ADMIN
Tools      first in /opt/tools
API        not configured: nothing was given
Running    not running: no program listens

Mode       a start would choose userspace; no mode was requested, and the
           default is iptables
           - iptables: it is missing

nftables   works on this host, for IPv4 only; not in this release
  lacks    fib (IPv6): no fib
           - lost: Node ports
           - remedy: get fib
  without  reject: no reject
           - remedy: get reject
  has      nft, fib (IPv4)
           - nft: version 1.0.6

userspace  works on this host

blocking   A kube-proxy runs on this node.
           - port 10256 answers
           - remedy: turn it off

kube-relay cannot run here until these problems are fixed.
`,
  );
});

Deno.test("renderDoctor() does not claim that a mode works that was not tested", () => {
  const [, userspace] = REPORT.modes;
  const modes = [{ ...userspace!, notTried: "not tested because it runs" }];
  const text = renderDoctor({ ...REPORT, modes });
  assertStringIncludes(text, "\nuserspace  not tested because it runs\n");
});

Deno.test("renderDoctor() keeps to the width, whatever was found", () => {
  const long = "word ".repeat(60).trim();
  const report: DoctorReport = {
    ...REPORT,
    findings: [{ id: "x", severity: "info", summary: long, evidence: [long], cure: long }],
    api: { state: "unreachable", detail: long },
  };
  for (const columns of [10, 60, 80, 200]) {
    const longest = Math.max(...renderDoctor(report, { columns }).split("\n").map((l) => l.length));
    assert(longest <= Math.min(110, Math.max(60, columns)), `${longest} in ${columns}`);
  }
});

Deno.test("renderDoctor() lets no text of the machine move the cursor", () => {
  const evil = "a\x1b[2Jb\rc\u202ed";
  const text = renderDoctor({
    ...REPORT,
    machine: { ...REPORT.machine, hostname: evil },
    findings: [{ id: "x", severity: "info", summary: evil, evidence: [evil], cure: evil }],
  });
  // deno-lint-ignore no-control-regex -- that is what must not be there
  assert(!/[\x00-\x09\x0b-\x1f\u202e]/.test(text), JSON.stringify(text));
});

Deno.test("renderDoctor() colours only if it is asked to, and the text is the same", () => {
  const colored = renderDoctor(REPORT, { color: true });
  assertStringIncludes(colored, "\x1b[");
  // deno-lint-ignore no-control-regex -- colours
  assertEquals(colored.replace(/\x1b\[\d+m/g, ""), renderDoctor(REPORT));
});

Deno.test("isBlocked() counts blocking findings only", () => {
  assertEquals(isBlocked(REPORT), true);
  const [finding] = REPORT.findings;
  for (const severity of ["warning", "info"] as const) {
    assertEquals(isBlocked({ findings: [{ ...finding!, severity }] }), false, severity);
  }
});

Deno.test("byGravity() puts the gravest first and keeps the order of equals", () => {
  const [finding] = REPORT.findings;
  const of = (id: string, severity: "blocking" | "warning" | "info") => ({
    ...finding!,
    id,
    severity,
  });
  const sorted = byGravity([
    of("a", "info"),
    of("b", "blocking"),
    of("c", "warning"),
    of("d", "info"),
  ]);
  assertEquals(sorted.map(({ id }) => id), ["b", "c", "a", "d"]);
});
