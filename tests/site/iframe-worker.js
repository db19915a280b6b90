// A browser lets a page from the disk have no workers: their script, that of the search, runs in a frame of the page.
// The theme calls it a polyfill, and asks the network for one unless it has one of this name.
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inner = frame.contentWindow;
    this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
    const script = this.inner.document.createElement("script");
    this.loaded = new Promise(done => { script.onload = done; });
    script.src = new URL(url, location.href).href;
    this.inner.document.body.append(script);
  }
  postMessage(data) {
    this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})));
  }
};
