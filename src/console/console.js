// Draws the charts anew every two seconds. They come as they are shown; without this the page can be loaded again.
'use strict'
const live = document.getElementById('live')
const state = document.getElementById('state')

async function turn() {
  try {
    if (!document.hidden) {
      const answer = await fetch('/console/charts')
      // The session is over: the page itself says so.
      if (answer.status === 401) return location.reload()
      if (!answer.ok) throw answer.status
      live.innerHTML = await answer.text()
      state.textContent = ''
    }
  } catch {
    state.textContent = 'The gateway does not answer. These are the last numbers that came.'
  }
  setTimeout(turn, 2000)
}

if (live) setTimeout(turn, 2000)
