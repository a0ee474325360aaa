import { assertEquals } from "@std/assert";

Deno.test("page.js opens a stream again that the browser gave up, after five seconds", async () => {
  const timers: [act: () => void, ms: number][] = [];
  const streams: FakeEvents[] = [];
  class FakeEvents {
    static readonly CLOSED = 2;
    readyState = 0;
    readonly listeners = new Map<string, () => void>();
    constructor() {
      streams.push(this);
    }
    addEventListener(name: string, listener: () => void) {
      this.listeners.set(name, listener);
    }
    close() {}
  }
  const element = { textContent: "", addEventListener() {} };
  const fakes = {
    document: { getElementById: () => element, querySelectorAll: () => [] },
    location: { search: "" },
    EventSource: FakeEvents,
    setTimeout: (act: () => void, ms: number) => timers.push([act, ms]),
    clearTimeout() {},
    setInterval() {},
  };
  const own = Object.keys(fakes).map((name) =>
    [name, Object.getOwnPropertyDescriptor(globalThis, name)] as const
  );
  const script = new URL("page.js", import.meta.url).href;
  try {
    for (const [name, value] of Object.entries(fakes)) {
      Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
    }
    await import(script);
    const [stream] = streams;
    stream!.listeners.get("error")!();
    assertEquals(timers.length, 0, "the browser tries again itself");
    stream!.readyState = FakeEvents.CLOSED;
    stream!.listeners.get("error")!();
    assertEquals(timers.map(([, ms]) => ms), [5000]);
    timers[0]![0]();
    assertEquals(streams.length, 2);
  } finally {
    for (const [name, descriptor] of own) {
      if (descriptor) Object.defineProperty(globalThis, name, descriptor);
      else Reflect.deleteProperty(globalThis, name);
    }
  }
});
