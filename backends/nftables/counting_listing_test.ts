import { assertEquals } from "@std/assert";
import { CountingListing } from "./counting_listing.ts";

/** As nft 1.0.6 prints it. */
const PRINT = `table ip kube-relay-counters {
\tset service-ips {
\t\ttype ipv4_addr . inet_proto . inet_service . ct_dir
\t\tcounter
\t\telements = { 172.30.0.1 . tcp . 80 . original counter packets 6 bytes 337,
\t\t\t     172.30.0.1 . tcp . 80 . reply counter packets 5 bytes 380 }
\t}

\tset node-ports {
\t\ttype inet_proto . inet_service . ct_dir
\t\tcounter
\t\telements = { udp . 30080 . reply counter packets 0 bytes 0 }
\t}

\tchain sent {
\t\ttype filter hook output priority -80; policy accept;
\t\tct status dnat goto count
\t}
}
`;

Deno.test("CountingListing reads what each element has counted, the first of a set too", () => {
  const listing = new CountingListing();
  for (const line of PRINT.split("\n")) listing.take(line);
  const { elements, frame } = listing.end();
  assertEquals(
    elements.map(({ id, direction, packets, bytes }) => [id, direction, packets, bytes]),
    [
      ["service-ips 172.30.0.1 . tcp . 80", "original", 6, 337],
      ["service-ips 172.30.0.1 . tcp . 80", "reply", 5, 380],
      ["node-ports udp . 30080", "reply", 0, 0],
    ],
  );
  assertEquals(frame.includes("packets"), false);
  assertEquals(frame.includes("ct status dnat goto count"), true);
});
