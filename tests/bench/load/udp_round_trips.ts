// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Keeps datagrams in flight from several ports to `host port` for some seconds, then prints the
 * round trips made and the seconds as JSON. A lost datagram is replaced after 200 ms. With `churn` as the
 * last argument, each round trip is made from another port.
 *
 * @module
 */
const [hostname = "", port = "", seconds = "", size = "64", churn] = Deno.args;
const FLOWS = 8;
const IN_FLIGHT = 8;
const target: Deno.NetAddr = { transport: "udp", hostname, port: Number(port) };
const started = performance.now();
const until = started + Number(seconds) * 1000;
let roundTrips = 0;
let lost = 0;

async function runFlow(): Promise<void> {
  const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
  const payload = new Uint8Array(Number(size));
  const buffer = new Uint8Array(65_535);
  let lastAnswer = performance.now();
  const watch = setInterval(() => {
    if (performance.now() - lastAnswer < 200) return;
    lost++;
    void socket.send(payload, target).catch(() => {});
  }, 200);
  const end = setTimeout(() => socket.close(), until - performance.now());
  try {
    for (let i = 0; i < IN_FLIGHT; i++) await socket.send(payload, target);
    for (;;) {
      await socket.receive(buffer);
      lastAnswer = performance.now();
      roundTrips++;
      await socket.send(payload, target);
    }
  } catch {
    // The timer has closed the socket: the time is up.
  } finally {
    clearInterval(watch);
    clearTimeout(end);
  }
}

/** One datagram each way from each port; one that is lost is given up after 200 ms. */
async function runFlows(): Promise<void> {
  while (performance.now() < until) {
    const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
    let isClosed = false;
    const close = () => {
      if (!isClosed) socket.close();
      isClosed = true;
    };
    const end = setTimeout(close, 200);
    try {
      await socket.send(new Uint8Array(Number(size)), target);
      await socket.receive();
      roundTrips++;
    } catch {
      lost++;
    } finally {
      clearTimeout(end);
      close();
    }
  }
}

await Promise.all(Array.from({ length: FLOWS }, churn ? runFlows : runFlow));
console.log(JSON.stringify({ roundTrips, lost, seconds: (performance.now() - started) / 1000 }));
