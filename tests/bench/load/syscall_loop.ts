// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Forwards `TCP` or `UDP` to a server with the syscalls engine and the whole logic of
 * connections and flows; with `full`, also with limits, affinity and counters. Prints its port.
 *
 * @module
 */
import { EventLoop } from "../../../backends/userspace/syscalls/event_loop.ts";
import { Libc } from "../../../backends/userspace/syscalls/libc.ts";
import { SyscallEngine } from "../../../backends/userspace/syscalls/syscall_engine.ts";
import { Forwarding } from "../../../backends/userspace/forwarding.ts";
import { serviceAddresses } from "../../../backends/userspace/listeners.ts";
import { TcpAcceptor } from "../../../backends/userspace/tcp/tcp_acceptor.ts";
import { TcpForwarder } from "../../../backends/userspace/tcp/tcp_forwarder.ts";
import { UdpForwarder, UdpPort } from "../../../backends/userspace/udp/udp_forwarder.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { ServiceTrafficTable } from "../../../lib/proxy/service_traffic.ts";
import { testServicePlan, testSharedPlan } from "../../support/builders/service_plans.ts";
import { MemoryLogger } from "../../support/fakes/memory_logger.ts";

const [protocol = "", server = "", serverPort = "", full] = Deno.args;
const MANY = 1_000_000;
const loop = new EventLoop(new Libc(), systemClock, (error) => console.error(error));
const engine = new SyscallEngine(loop);
const traffic = new ServiceTrafficTable({ maxServices: 10, maxServicePorts: 10 }).of("IPv4");
const forwarding = new Forwarding({
  ...{ clock: loop.clock, logger: new MemoryLogger(), network: systemNetwork, engine },
  ...(full && { traffic }),
}, { udpTimeoutMs: 10_000 });
const plan = testServicePlan({
  protocol: protocol === "TCP" ? "TCP" : "UDP",
  to: [`${server}:${serverPort}`],
  ...(full && {
    affinityTimeoutSeconds: 10_800,
    edge: {
      ...{ maxConnections: MANY, maxPerClient: MANY, maxPerSecond: MANY },
      ...{ idleMs: 600_000, lifetimeMs: 3_600_000 },
    },
  }),
});
const at = serviceAddresses(plan, testSharedPlan())[0]!;
const here = { hostname: "127.0.0.1", port: 0 };
if (plan.protocol === "TCP") {
  const source = engine.listenTcp(here);
  console.log(source.addr.port);
  new TcpAcceptor(forwarding, source, new TcpForwarder(forwarding, plan), at).start();
} else {
  const socket = engine.listenUdp(here);
  console.log(socket.addr.port);
  new UdpPort(forwarding, socket, new UdpForwarder(forwarding, plan), at).start();
}
loop.run();
