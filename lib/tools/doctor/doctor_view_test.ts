import { assertEquals, assertStringIncludes } from "@std/assert";
import { missingFeature } from "../../../tests/support/fakes/fake_host_checks.ts";
import type { DoctorReport } from "./doctor_report.ts";
import { paintText, type TextLook } from "../report.ts";
import { doctorView } from "./doctor_view.ts";

const REPORT: DoctorReport = {
  program: { version: "1.2.3", kubeProxy: "1.36", deno: "2.9.6", platform: "linux/x86_64" },
  machine: {
    hostname: "node-a",
    kernel: "6.1.0",
    uid: 0,
    capabilities: ["CAP_NET_ADMIN"],
    toolsPath: ["/opt/tools"],
  },
  configuredBy: "this command line",
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

function text(report: DoctorReport, look: TextLook & { isVerbose?: boolean } = {}): string {
  return paintText(doctorView(report, look.isVerbose ?? false), look);
}

Deno.test("doctorView() has findings first, and one line for each mode", () => {
  assertEquals(
    text(REPORT),
    `kube-relay cannot run here until these problems are fixed.

blocking  A kube-proxy runs on this node.
            port 10256 answers
            remedy: turn it off

Mode       a start would choose userspace; no mode was requested, and the
           default is iptables
             iptables: it is missing
nftables   works on this host, for IPv4 only; not in this release; lacks fib
           (IPv6); without reject
userspace  works on this host
API        not configured: nothing was given
Running    not running: no program listens
Checked    the configuration of this command line
`,
  );
});

Deno.test("doctorView() has the machine and every feature if it is verbose", () => {
  const verbose = text(REPORT, { isVerbose: true });
  for (
    const part of [
      "           (IPv6); without reject\n             has nft: version 1.0.6\n",
      "             has fib (IPv4)\n             lacks fib (IPv6): no fib\n",
      "               lost: Node ports\n               remedy: get fib\n",
      "             without reject: no reject\n",
      "kube-relay  v1.2.3 (kube-proxy 1.36, Deno 2.9.6, linux/x86_64)\n",
      "Machine     node-a, kernel 6.1.0\n",
      "User        root; its tools have CAP_NET_ADMIN\n",
      "Tools       first in /opt/tools\n",
    ]
  ) assertStringIncludes(verbose.replaceAll("              ", "             "), part.trimStart());
});

Deno.test("doctorView() does not claim that a mode works that was not tested", () => {
  const [, userspace] = REPORT.modes;
  const modes = [{ ...userspace!, notTried: "not tested because it runs" }];
  assertStringIncludes(text({ ...REPORT, modes }), "\nuserspace  not tested because it runs\n");
});
