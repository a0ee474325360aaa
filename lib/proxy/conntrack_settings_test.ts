import { assertEquals } from "@std/assert";
import { type ConntrackLimits, conntrackMax, conntrackSettings } from "./conntrack_settings.ts";

/** control-plane 2.8: maxPerCore, min, CPUs, and the result. */
for (
  const [maxPerCore, min, cpus, expected] of [
    [32_768, 131_072, 8, 262_144],
    [32_768, 131_072, 2, 131_072],
    [32_768, 131_072, 32, 1_048_576],
    [32_768, 131_072, 64, 1_048_576],
    [32_768, 2_000_000, 64, 1_048_576],
    [32_768, 2_000_000, 2, 2_000_000],
    [1, 0, 4, 4],
    [0, 131_072, 8, undefined],
  ] as const
) {
  Deno.test(`conntrackMax() of ${maxPerCore} for each of ${cpus} CPUs, at least ${min}`, () => {
    assertEquals(conntrackMax({ maxPerCore, min }, cpus), expected);
  });
}

const NOTHING: ConntrackLimits = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedTimeout: 0,
  tcpCloseWaitTimeout: 0,
  tcpBeLiberal: false,
  udpTimeout: 0,
  udpStreamTimeout: 0,
};

Deno.test("conntrackSettings() sets nothing if all is left to the kernel", () => {
  assertEquals(conntrackSettings(NOTHING, 8), []);
});

Deno.test("conntrackSettings() wants everything in upstream's order, the hash as a lower bound", () => {
  const requests = conntrackSettings({
    maxPerCore: 32_768,
    min: 131_072,
    tcpEstablishedTimeout: 86_400_000,
    tcpCloseWaitTimeout: 3_600_000,
    tcpBeLiberal: true,
    udpTimeout: 30_900,
    udpStreamTimeout: 180_000,
  }, 8);
  const lines = requests.map(({ name, value, atLeast }) =>
    `${name} ${atLeast ? ">=" : "="} ${value}`
  );
  assertEquals(lines, [
    "net.netfilter.nf_conntrack_max = 262144",
    "net.netfilter.nf_conntrack_buckets >= 65536",
    "net.netfilter.nf_conntrack_tcp_timeout_established = 86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait = 3600",
    "net.netfilter.nf_conntrack_tcp_be_liberal = 1",
    "net.netfilter.nf_conntrack_udp_timeout = 30",
    "net.netfilter.nf_conntrack_udp_timeout_stream = 180",
  ]);
});

Deno.test("conntrackSettings() makes a second of any part of one", () => {
  const requests = conntrackSettings({ ...NOTHING, tcpEstablishedTimeout: 500, udpTimeout: 1 }, 8);
  assertEquals(requests.map(({ value }) => value), ["1", "1"]);
});
