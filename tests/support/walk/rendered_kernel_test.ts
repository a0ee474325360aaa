import { assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { readRenderedKernel } from "./rendered_kernel.ts";

Deno.test("readRenderedKernel() keeps the lines that rules, sets, addresses and servers come from", () => {
  const key = "-t [fd00::1]:80" as const;
  const { rules, ipvs } = readRenderedKernel([
    {
      tool: "ipset",
      lines: ["create A hash:ip -exist", "add A fd00::1 -exist", "create B hash:ip"],
    },
    {
      tool: "iptables",
      lines: [
        "*nat",
        ":KUBE-A - [0:0]",
        "-A KUBE-A -j DROP",
        "-I INPUT -j X",
        "-I INPUT -j Y",
        "COMMIT",
      ],
    },
    { tool: "ip", lines: ["link add d type dummy", "addr replace fd00::1/128 dev d"] },
    {
      tool: "ipvsadm",
      lines: [`-A ${key} -s rr`, `-a ${key} -r [fd00::2]:80 -m -w 1`],
    },
  ]);
  assertEquals(rules("nat", "KUBE-A"), ["-j DROP"]);
  assertEquals(rules("nat", "INPUT"), ["-j Y", "-j X"]);
  assertEquals([rules("filter", "INPUT"), rules("filter", "KUBE-A")], [[], undefined]);
  assertEquals([ipvs.entries("A"), ipvs.entries("B"), ipvs.entries("C")], [
    ["fd00::1"],
    [],
    undefined,
  ]);
  const destination = parseIpAddress("fd00::1");
  assertEquals(ipvs.address(destination), "addr replace fd00::1/128 dev d");
  assertEquals(ipvs.server({ destination, port: 80, protocol: "TCP" }), [
    `-A ${key} -s rr`,
    `-a ${key} -r [fd00::2]:80 -m -w 1`,
  ]);
  assertEquals(ipvs.server({ destination, port: 80, protocol: "UDP" }), undefined);
});

Deno.test("readRenderedKernel() refuses every line that a first sync does not have", () => {
  for (
    const [tool, line] of [
      ["ipset", "del A 10.0.0.1 -exist"],
      ["iptables", "-D KUBE-A -j DROP"],
      ["ip", "addr del 10.0.0.1/32 dev d"],
      ["ipvsadm", "-D -t 10.0.0.1:80"],
    ] as const
  ) {
    assertThrows(() => readRenderedKernel([{ tool, lines: [line] }]), Error, `'${line}'`);
  }
});
